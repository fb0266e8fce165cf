//! A service whose doors to the outside are open to another network and to no third one: who is where on
//! three nodes, and the plan of each of them. All three networks have the same addresses inside.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use atoll_datapath::DropReason;
use atoll_plan::{
    Backend, Closed, Egress, Exit, Exits, NodePlan, Opening, Service, ServiceKey, Side,
};
use atoll_types::Protocol;

use crate::balancers::exchange;
use crate::fabric::{Fabric, Pod, network};
use crate::outside::{FAR, World, only};
use crate::talk::{BRIEF, LIMIT, Voice, connect, listen};

pub(crate) const NODES: usize = 3;
pub(crate) const PORT: u16 = 80;
pub(crate) const NODE_PORT: u16 = 30100;
pub(crate) const TARGET: u16 = 8080;
const OWNER: u32 = 100;
pub(crate) const INVITED: u32 = 200;
pub(crate) const STRANGER: u32 = 300;
const CLIENTS: [u32; 2] = [INVITED, STRANGER];

/// Who is where, and what is open.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// The node that answers for the load balancer's addresses.
    pub(crate) holder: usize,
    /// The node of the only backend; none without one.
    pub(crate) behind: Option<usize>,
    /// The node that the clients leave by with an address of their own; none: each by its own node.
    pub(crate) exit: Option<usize>,
    pub(crate) is_open: bool,
}

pub(crate) const OPEN: Layout = Layout { holder: 0, behind: Some(0), exit: None, is_open: true };

/// On every node a pod of the owner, and on the first a client of each of both other networks.
pub(crate) struct Scene {
    pub(crate) fabric: Fabric,
    pub(crate) backends: [Pod; NODES],
    clients: [Pod; 2],
    _world: World,
}

/// The address of the load balancer, of the family of `like`.
pub(crate) fn edge(like: IpAddr) -> IpAddr {
    outside(like, 50)
}

/// What the outside sees of a network that leaves by an address of its own.
pub(crate) fn face(number: u32, like: IpAddr) -> IpAddr {
    outside(like, 60 + (number / 100) as u8)
}

fn outside(like: IpAddr, last: u8) -> IpAddr {
    match like {
        IpAddr::V4(_) => [192, 168, 77, last].into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last.into()).into(),
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn everybody(like: IpAddr) -> &'static str {
    if like.is_ipv4() { "0.0.0.0/0" } else { "::/0" }
}

fn key(ip: IpAddr, protocol: Protocol, port: u16) -> ServiceKey {
    let port = port.try_into().unwrap();
    ServiceKey { network: network(OWNER), side: Side::Outside, ip, protocol, port }
}

pub(crate) fn voice(pod: &Pod, like: IpAddr) -> Voice<'_> {
    if like.is_ipv4() { pod.v4() } else { pod.v6() }
}

impl Scene {
    pub(crate) fn laid_out(layout: Layout) -> Scene {
        let (world, fabric) = World::with_nodes(NODES as u8);
        let backends = std::array::from_fn(|place| {
            fabric.planned_pod(place, network(OWNER), &format!("10.0.0.{}", 5 + place))
        });
        let clients = CLIENTS.map(|number| fabric.planned_pod(0, network(number), "10.0.0.5"));
        let scene = Scene { fabric, backends, clients, _world: world };
        scene.lay_out(layout);
        scene
    }

    pub(crate) fn lay_out(&self, layout: Layout) {
        for place in 0..NODES {
            let mut plan = self.fabric.nodes[place].plan.lock().unwrap();
            plan.held.clear();
            self.serve(&mut plan, layout);
            self.close(&mut plan);
            self.let_out(&mut plan, place, layout);
            plan.openings = if layout.is_open { self.openings(place, layout) } else { [].into() };
            if place == layout.holder {
                plan.held.extend(FAR.map(|far| (edge(far), network(OWNER))));
            }
        }
        self.fabric.converge();
        for node in &self.fabric.nodes {
            let told: BTreeSet<IpAddr> = node.plan.lock().unwrap().held.keys().copied().collect();
            node.run(move |state| state.datapath.as_ref().unwrap().announce(&told).unwrap());
        }
    }

    /// The service, at the load balancer's addresses and at the node port.
    fn serve(&self, plan: &mut NodePlan, layout: Layout) {
        for (far, protocol) in FAR.into_iter().flat_map(|far| Protocol::ALL.map(|it| (far, it))) {
            let addrs = layout.behind.into_iter().flat_map(|place| self.backends[place].addrs());
            let addrs = addrs.filter(|addr| addr.ip.is_ipv4() == far.is_ipv4());
            let port = TARGET.try_into().unwrap();
            let backends: BTreeSet<_> = addrs.map(|addr| Backend { addr, port }).collect();
            let sources = [everybody(far).parse().unwrap()].into();
            let at_edge = Service { backends: backends.clone(), affinity: None, sources };
            plan.services.insert(key(edge(far), protocol, PORT), at_edge);
            let at_nodes = Service { backends, ..Service::default() };
            plan.services.insert(key(unspecified(far), protocol, NODE_PORT), at_nodes);
        }
    }

    fn close(&self, plan: &mut NodePlan) {
        let own = ["10.0.0.0/8", "fd00::/64"].map(|range| range.parse().unwrap());
        for to in [OWNER, INVITED, STRANGER].map(|number| Some(network(number))) {
            plan.closed.extend(own.map(|range| Closed { to, range }));
        }
        let nodes = FAR.into_iter().flat_map(|far| self.nodes(far));
        let pool = FAR
            .into_iter()
            .flat_map(|far| CLIENTS.map(|number| face(number, far)).into_iter().chain([edge(far)]));
        plan.closed.extend(nodes.chain(pool).map(|ip| Closed { to: None, range: only(ip) }));
    }

    fn let_out(&self, plan: &mut NodePlan, place: usize, layout: Layout) {
        plan.egress.clear();
        for number in CLIENTS {
            let exit = |holder: usize, far| match place == holder {
                true => Exit::Here(face(number, far)),
                false => Exit::There(self.fabric.nodes[holder].tunnel),
            };
            let egress = match layout.exit {
                None => Egress::Node,
                Some(at) => Egress::Addresses(Exits {
                    v4: Some(exit(at, FAR[0])),
                    v6: Some(exit(at, FAR[1])),
                }),
            };
            if place == 0 || layout.exit == Some(place) {
                plan.egress.insert(network(number), egress);
            }
            if layout.exit == Some(place) {
                plan.held.extend(FAR.map(|far| (face(number, far), network(number))));
            }
        }
    }

    /// What of it is open to the network that was invited, as a node sees it.
    fn openings(&self, own: usize, layout: Layout) -> BTreeMap<Opening, bool> {
        let port = |address, protocol, port: u16| Opening::Port {
            to: network(INVITED),
            address,
            protocol,
            port: port.try_into().unwrap(),
        };
        let of_family = |far: IpAddr| {
            let nodes = self.nodes(far).into_iter().enumerate();
            let nodes = nodes.map(move |(place, ip)| (Opening::Node(ip), place == own));
            let ports = Protocol::ALL.into_iter().flat_map(move |protocol| {
                let at_edge = (port(edge(far), protocol, PORT), layout.holder == own);
                [at_edge, (port(unspecified(far), protocol, NODE_PORT), false)]
            });
            nodes.chain(ports)
        };
        FAR.into_iter().flat_map(of_family).collect()
    }

    /// The addresses of the nodes, of the family of `like`.
    pub(crate) fn nodes(&self, like: IpAddr) -> [IpAddr; NODES] {
        std::array::from_fn(|place| match like {
            IpAddr::V4(_) => self.fabric.nodes[place].underlay.into(),
            IpAddr::V6(_) => [0xfd77, 0, 0, 0, 0, 0, 0, 1 + place as u16].into(),
        })
    }

    /// What the backend sees of the client that was invited.
    fn seen_as(&self, layout: Layout, like: IpAddr) -> IpAddr {
        match layout.exit {
            None => self.nodes(like)[0],
            Some(_) => face(INVITED, like),
        }
    }

    pub(crate) fn invited(&self, like: IpAddr) -> Voice<'_> {
        voice(&self.clients[0], like)
    }

    pub(crate) fn stranger(&self, like: IpAddr) -> Voice<'_> {
        voice(&self.clients[1], like)
    }

    pub(crate) fn closed(&self, number: u32) -> u64 {
        self.fabric.nodes[0].dropped(Some(network(number)), DropReason::OutsideClosed)
    }

    /// Who was invited reaches the backend at `at`, and a stranger does not.
    pub(crate) fn try_tcp(&self, layout: Layout, at: SocketAddr) {
        let backend = voice(&self.backends[layout.behind.unwrap()], at.ip());
        let listener = listen(backend, TARGET);
        let ours = connect(self.invited(at.ip()), 40_000, at, LIMIT).unwrap();
        let (theirs, seen) = listener.accept().unwrap();
        assert_eq!(seen.ip(), self.seen_as(layout, at.ip()), "{at}");
        exchange(&ours, &theirs);
        self.is_kept_out(self.stranger(at.ip()), at);
    }

    /// Nobody answers a pod, and what it sent was dropped as closed.
    pub(crate) fn is_kept_out(&self, voice: Voice<'_>, at: SocketAddr) {
        let number = voice.pod.network.get();
        let before = self.closed(number);
        connect(voice, 0, at, BRIEF).unwrap_err();
        assert!(self.closed(number) > before, "{at} was not closed to {number}");
    }

    pub(crate) fn check_kernels(&self) {
        for node in &self.fabric.nodes {
            assert_eq!(node.observe(), node.planned());
        }
    }
}
